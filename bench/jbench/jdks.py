"""The JDKs that programs run on: the host's, and those of the root file systems that `scripts/jdk-roots.sh` makes."""

import pathlib
import re
import shutil

HOST = pathlib.Path("/usr/lib/jvm")
# What is measured unless asked otherwise: the versions that most services have, and will have.
USUAL = ["17", "25"]
# A program sees the root's libraries and the JDK's own files in place of the host's, and all else of the host, so that
# paths and process ids mean the same to everyone. A root without a merged /usr has its C library elsewhere; such an old
# JDK runs with the host's.
ENTER = """
mount --rbind "$0/etc" /etc
if [ -L "$0/lib" ]; then mount --rbind "$0/usr" /usr; else mount --rbind "$0/usr/lib/jvm" /usr/lib/jvm; fi
exec "$@"
"""


class Jdk:
    """A JDK: its version, its home as its programs see it, and how a program is started on it."""

    def __init__(self, home, version, root=None):
        self.home, self.version, self.root = pathlib.Path(home), version, root
        self.name = f"JDK {self.version}{'' if root is None else ' of ' + root.name}"
        enter = [] if root is None else ["unshare", "--mount", "sh", "-e", "-c", ENTER, str(root)]
        self.java = [*enter, str(self.home / "bin/java")]


def version(home):
    """As the JDK's own `release` file states it, such as 17.0.15; none if it is no JDK."""
    try:
        stated = re.search(r'^JAVA_VERSION="(.*)"', (home / "release").read_text(encoding="ascii"), re.M)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stated and stated[1]


def major(text):
    return text.removeprefix("1.").split(".")[0]


def on_host():
    """The host's, each once: a home may have several names."""
    homes = sorted({home.resolve() for home in HOST.glob("*") if (home / "bin/java").exists()})
    return [Jdk(home, stated) for home in homes if (stated := version(home))]


def of_root(cache, wanted):
    """The one in the root file system that was made for this version."""
    root = cache.directory.parent / "jdk-roots" / wanted
    inside = [home for home in (root / "usr/lib/jvm").glob("*") if not home.is_symlink() and (home / "bin/java").exists()]
    return Jdk(f"/{inside[0].relative_to(root)}", version(inside[0]) or wanted, root) if inside else None


def chosen(cache, wanted, figures):
    """The JDKs that are wanted, by version or by home; those of the usual ones that are not here are told."""
    found = []
    for one in wanted or USUAL:
        if "/" in one:
            stated = version(pathlib.Path(one))
            jdk = Jdk(one, stated) if stated else None
        else:
            here = [jdk for jdk in on_host() if major(jdk.version) == one]
            jdk = here[0] if here else of_root(cache, one)
        if jdk:
            found.append(jdk)
        else:
            figures.lack(f"JDK {one}", f"no such home, none in {HOST}, no root file system (scripts/jdk-roots.sh {one})")
    if not found:
        raise SystemExit("no JDK is here")
    return found


def tool(name):
    """A program of the host's newest JDK that has it; the tools of one JDK know the JVMs of all."""
    having = [jdk for jdk in on_host() if (jdk.home / "bin" / name).exists()]
    if having:
        return str(max(having, key=lambda jdk: int(major(jdk.version))).home / "bin" / name)
    return shutil.which(name) or name


def builds():
    """The one that compiles the programs, for every JDK from 8 on."""
    return [tool("javac"), "--release", "8", "-Xlint:-options"]
