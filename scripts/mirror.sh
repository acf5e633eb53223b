# Sourced: from where this machine has packages of a distribution.
# shellcheck shell=bash

# mirror ORIGIN: the first place from which apt has packages of this origin; of security updates there are others.
mirror() {
    apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        sed -n "/-security|/d; s/^$1|[^|]*|//p" | head -n 1
}

# mirror_beside ORIGIN OTHER: the directory of an origin beside that of the other one, of which apt has packages. Most
# mirrors have both. It may not exist.
mirror_beside() {
    mirror "$2" | sed -n "s|/${2,,}/*\$|/${1,,}/|p"
}
