#!/bin/sh
# Leaves caches, and says where they are. Without any, nothing stays.
set -e
case "$1" in
remove | purge | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload; fi
if [ -d /var/lib/lcache ]; then
  find /var/lib/lcache -depth -maxdepth 1 -type d -empty -delete
fi
if [ -d /var/lib/lcache ]; then
  echo "lcache: the caches of its services stay in /var/lib/lcache: $(du -sh /var/lib/lcache | cut -f1); they are copies, and rm -r removes them" >&2
elif getent passwd lcache >/dev/null; then
  userdel lcache
  if getent group lcache >/dev/null; then groupdel lcache; fi
fi
echo "lcache: caches of users stay: in .cache/lcache of their homes, or where --cache put them" >&2
