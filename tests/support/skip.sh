#!/usr/bin/env bash
# Stands for a test that this build cannot have: ctest lists it as skipped, and why.
#
# usage: skip.sh REASON
echo "skipped: $1"
exit 77
