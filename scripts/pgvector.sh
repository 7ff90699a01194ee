#!/usr/bin/env bash
# Puts a PostgreSQL that has pgvector into .cache/ of this checkout, for tests: a pinned
# PyPI package, checked against its SHA-256. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.1.4
sum=d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813
dir=.cache/pgserver-$version

[ "$(cat "$dir/.sum" 2>/dev/null)" = "$sum" ] && exit
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "pgvector: the pinned package is for Linux on x86_64; the tests of discover/pgvector fail here" >&2; exit 1; }
command -v python3 >/dev/null || { echo "pgvector: python3 is missing; it fetches the package" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "pgserver==$version --hash=sha256:$sum" >"$work/pin"
# The wheel is taken for what is in it, whatever Python fetches it.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
	--implementation cp --python-version 3.11 --abi cp311 --platform manylinux2014_x86_64 -r "$work/pin" -d "$work"
rm -rf "$dir"
mkdir -p "$dir"
python3 -m zipfile -e "$work"/*.whl "$dir"
chmod -R a+rX,u+w "$dir"
chmod a+x "$dir"/pgserver/pginstall/bin/*
"$dir/pgserver/pginstall/bin/postgres" --version >/dev/null || { echo "pgvector: the server of the package does not run here" >&2; exit 1; }
echo "$sum" >"$dir/.sum"
