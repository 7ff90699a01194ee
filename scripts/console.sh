#!/usr/bin/env bash
# Installs the packages that build and test the web console, pinned in web/package-lock.json, again when a pin changes.
set -euo pipefail
cd "$(dirname "$0")/../web"
pins=$(sha256sum <package-lock.json)
[ "$(cat .installed 2>/dev/null)" = "$pins" ] && [ -d node_modules/vite ] && exit 0
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null ||
	{ echo "console: Node.js 20.19 or newer is missing; only building and testing the console needs it" >&2; exit 1; }
PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
echo "$pins" >.installed
