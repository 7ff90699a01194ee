#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Safe to run again: what is
# there stays as it is. A need that cannot be met fails here, not in a test.
set -euo pipefail

need() { # need COMMAND DEBIAN-PACKAGE
	command -v "$1" >/dev/null && return
	if ! command -v apt-get >/dev/null; then
		echo "test-deps: $1 is missing and this is no Debian machine: install $2 by hand" >&2
		exit 1
	fi
	[ -n "${updated:-}" ] || { apt-get update -qq; updated=1; }
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2"
}

command -v go >/dev/null || { echo "test-deps: Go 1.26 or newer is missing" >&2; exit 1; }
need gcc gcc   # the race detector links with it
need git git   # make check compares generated files
need curl curl # the examples of the documentation call it
