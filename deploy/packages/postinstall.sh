#!/bin/sh
# Makes the user lcache, which the unit lcache@.service runs as.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers lcache.conf
elif ! getent passwd lcache >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/lcache --no-create-home --shell /usr/sbin/nologin lcache
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload; fi
