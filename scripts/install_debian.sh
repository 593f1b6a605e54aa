#!/bin/sh
# Install the Debian packages that the browser, Spark and Postgres tests need, where they are missing and where we may.
set -eu
missing=""
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v chromedriver >/dev/null 2>&1 || missing="$missing chromium-driver"
command -v java >/dev/null 2>&1 || missing="$missing openjdk-17-jre-headless"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql-15"
command -v pdftotext >/dev/null 2>&1 || missing="$missing poppler-utils"
command -v tmux >/dev/null 2>&1 || missing="$missing tmux"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "Please install:$missing (tests that need them will fail and say so)" >&2
  exit 0
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086
apt-get -qq install -y --no-install-recommends $missing >/dev/null
