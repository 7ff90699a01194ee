#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Safe to run again: what is
# there stays as it is. A need that cannot be met fails here, not in a test.
set -euo pipefail

install() { # install WHAT DEBIAN-PACKAGE
	if ! command -v apt-get >/dev/null; then
		echo "test-deps: $1 is missing and this is no Debian machine: install $2 by hand" >&2
		exit 1
	fi
	[ -n "${updated:-}" ] || { apt-get update -qq; updated=1; }
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2"
}

need() { # need COMMAND DEBIAN-PACKAGE
	command -v "$1" >/dev/null || install "$1" "$2"
}

# The tests start servers of their own; the one that the package brings is
# stopped and stays so. A PostgreSQL that was there before is left alone.
need_postgres() {
	compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && return
	command -v postgres >/dev/null && command -v initdb >/dev/null && return
	install "the PostgreSQL server" postgresql
	pg_lsclusters -h | while read -r version name _; do
		pg_ctlcluster "$version" "$name" stop 2>/dev/null || true # it may not run
		echo manual >"/etc/postgresql/$version/$name/start.conf"
	done
}

# The tests start a MariaDB of their own; the one that the package brings is
# stopped. One that was there before is left alone.
need_mariadb() {
	command -v mariadbd >/dev/null && return
	install mariadbd mariadb-server
	if command -v service >/dev/null; then service mariadb stop >/dev/null 2>&1 || true; fi
	if [ -d /run/systemd/system ]; then systemctl disable --now --quiet mariadb || true; fi
}

# The tests start Redis servers of their own; the one that the package brings is
# stopped. One that was there before is left alone.
need_redis() {
	command -v redis-server >/dev/null && return
	install redis-server redis-server
	if command -v service >/dev/null; then service redis-server stop >/dev/null 2>&1 || true; fi
	if [ -d /run/systemd/system ]; then systemctl disable --now --quiet redis-server || true; fi
}

# The tests start PgBouncers of their own, too.
need_pgbouncer() {
	command -v pgbouncer >/dev/null && return
	install pgbouncer pgbouncer
	if command -v service >/dev/null; then service pgbouncer stop >/dev/null 2>&1 || true; fi
	if [ -d /run/systemd/system ]; then systemctl disable --now --quiet pgbouncer || true; fi
}

# MCP clients, servers and the conformance suite, pinned in tools/mcptest. They
# are installed again when a pin changes.
need_mcptest() (
	cd "$(dirname "$0")/../tools/mcptest"
	pins=$(cat package-lock.json requirements-*.txt | sha256sum)
	[ "$(cat .installed 2>/dev/null)" = "$pins" ] && return
	need npm npm
	npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	python3 -c 'import ensurepip' 2>/dev/null || install "python3's venv" python3-venv
	for name in mcp langchain schemathesis; do
		python3 -m venv "venv-$name"
		"venv-$name/bin/pip" install --quiet --disable-pip-version-check -r "requirements-$name.txt"
	done
	echo "$pins" >.installed
)

# What builds the web console, and Debian's Chromium to test it in; with its fonts pictures look as they do elsewhere.
need_console() {
	need chromium-headless-shell chromium-headless-shell
	compgen -G '/usr/share/fonts/truetype/liberation*' >/dev/null || install "the Liberation fonts" fonts-liberation
}

# The jars of a Kafka broker, pinned in tools/kafkatest; Maven compares their checksums.
need_kafka() (
	cd "$(dirname "$0")/../tools/kafkatest"
	pins=$(sha256sum <pom.xml)
	[ "$(cat lib/.installed 2>/dev/null)" = "$pins" ] && return
	need java default-jre-headless
	need mvn maven
	rm -rf lib
	mvn --batch-mode --quiet --strict-checksums org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib
	echo "$pins" >lib/.installed
)

# A program of a module of its own, built once, and again when its go.mod, go.sum or
# main.go changes: vaulttest, a real Vault for the tests of secret/vault, takes two to four
# minutes on two cores, kvtest, its KV plugin alone, half a minute. What they import is
# compiled without optimisation and debugging data, which takes less than two thirds of the time.
need_built() ( # need_built NAME
	cd "$(dirname "$0")/../tools/$1"
	sum=$(cat go.mod go.sum main.go | sha256sum | cut -d' ' -f1)
	[ -x ".bin/$1-$sum" ] && return
	mkdir -p .bin
	rm -f ".bin/$1-"*
	echo "test-deps: building $1" >&2
	local quick=()
	for modules in github.com go.mongodb.org google.golang.org cloud.google.com k8s.io; do
		quick+=("-gcflags=$modules/...=-N -l -dwarf=false")
	done
	CGO_ENABLED=0 go build "${quick[@]}" -ldflags '-s -w' -o .bin/building .
	mv .bin/building ".bin/$1-$sum"
)

command -v go >/dev/null || { echo "test-deps: Go 1.26 or newer is missing" >&2; exit 1; }
need gcc gcc   # the race detector links with it
need git git   # make check compares generated files
need curl curl # the examples of the documentation call it
need_postgres
need_pgbouncer
need_mariadb
need_redis
need_console
# What is downloaded comes while programs are built.
{
	need_mcptest
	need_kafka
	"$(dirname "$0")/console.sh"
	"$(dirname "$0")/model.sh"
	"$(dirname "$0")/pgvector.sh"
} &
downloads=$!
trap wait EXIT # a build that fails leaves no download behind
need_built kvtest
need_built vaulttest
wait "$downloads"
