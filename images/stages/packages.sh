#!/bin/sh
# Install Debian packages in a build stage: `packages.sh NAME...`. A mirror (as a
# sources.list) and a private CA come as build secrets, so no layer ever holds them.
set -eu

names=$*
secrets=/run/secrets
set -- --quiet --option=APT::Install-Recommends=false
if [ -s "$secrets/apt" ]; then
    set -- "$@" --option=Dir::Etc::sourcelist="$secrets/apt" --option=Dir::Etc::sourceparts=-
fi
if [ -s "$secrets/ca" ]; then
    set -- "$@" --option=Acquire::https::CAInfo="$secrets/ca"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get "$@" update
# shellcheck disable=SC2086  # package names hold no spaces
apt-get "$@" install --yes $names
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/apt /var/log/dpkg.log
