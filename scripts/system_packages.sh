#!/bin/sh
# Install what tests need of the system, from Debian's packages: Chromium for the studio's page, strace for faults of
# the disk. What cannot be installed is said, the tests that need it are skipped, and this does not fail.
missing=""
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && found_browser=yes
done
[ -n "$found_browser" ] || missing="chromium chromium-driver fonts-dejavu-core"
command -v strace >/dev/null 2>&1 || missing="$missing strace"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Not installed, and apt-get is not available:$missing; the tests that need them will be skipped" >&2
    exit 0
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "Not installed, and root is needed to install: $missing; the tests that need them will be skipped" >&2
    exit 0
fi
echo "Installing $missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 - names of packages
if ! { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing; } >/dev/null; then
    echo "Could not be installed: $missing; the tests that need them will be skipped" >&2
fi
exit 0
