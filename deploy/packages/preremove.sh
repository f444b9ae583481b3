#!/bin/sh
# Stops the servers before the program goes, but not when another version takes its place. dpkg calls with a word, rpm with the number of versions that stay.
set -e
case "$1" in
remove | deconfigure | 0)
  if [ -d /run/systemd/system ]; then systemctl stop 'lcache@*.service'; fi
  ;;
esac
