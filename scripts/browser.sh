#!/bin/sh
# Install Chromium for the end-to-end tests of the studio: the packages of Debian, where this is possible.
# Without them the tests are skipped and say so, hence no failure here.
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Chromium is not installed and apt-get is not available: the browser tests will be skipped" >&2
    exit 0
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "Chromium is not installed and needs root to install: the browser tests will be skipped" >&2
    exit 0
fi
echo "Installing Chromium for the browser tests"
export DEBIAN_FRONTEND=noninteractive
if ! { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends \
    chromium chromium-driver fonts-dejavu-core; } >/dev/null; then
    echo "Chromium could not be installed: the browser tests will be skipped" >&2
fi
exit 0
