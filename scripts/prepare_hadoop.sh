#!/usr/bin/env bash
# Java and the jars of a real HDFS for the tests.
set -euo pipefail
folder=${1:-build/hadoop}
python=${2:-python3}
# shellcheck source=scripts/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

jersey=(libjersey1-core-java libjersey1-server-java libjersey1-servlet-java libjsr311-api-java)
has_jersey() {
    local jar
    for jar in jersey1-core jersey1-server jersey1-servlet jsr311-api; do
        [ -e "/usr/share/java/$jar.jar" ] || return 1
    done
}

command -v java >/dev/null || apt_install --no-install-recommends openjdk-17-jre-headless ||
    fail "Java is needed for the HDFS of the tests: install openjdk-17-jre-headless"
has_jersey || apt_install --no-install-recommends "${jersey[@]}" ||
    fail "Jersey 1 is needed for the HDFS of the tests: install ${jersey[*]}"
echo "gathering the jars of HDFS: takes half a minute"
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/fetch_hadoop.py" "$folder"
