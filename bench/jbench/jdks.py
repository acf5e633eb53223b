"""The JDKs that run the programs: the host's, and those of the root file systems of `scripts/jdk-roots.sh`."""

import pathlib
import re
import shutil

HOST = pathlib.Path("/usr/lib/jvm")
# The default: versions that most services have now or will have.
USUAL = ["17", "25"]
# A program gets the libraries of the root and the JDK's own files in place of the host's; all other files are the
# host's. So paths and process ids are the same for all processes. A root without a merged /usr has its C library in
# another place; such an old JDK runs with the host's libraries.
ENTER = """
mount --rbind "$0/etc" /etc
if [ -L "$0/lib" ]; then mount --rbind "$0/usr" /usr; else mount --rbind "$0/usr/lib/jvm" /usr/lib/jvm; fi
exec "$@"
"""


class Jdk:
    """A JDK: its version, its home in its programs' view, and the command that starts a program."""

    def __init__(self, home, version, root=None):
        self.home, self.version, self.root = pathlib.Path(home), version, root
        self.name = f"JDK {self.version}{'' if root is None else ' of ' + root.name}"
        enter = [] if root is None else ["unshare", "--mount", "sh", "-e", "-c", ENTER, str(root)]
        self.java = [*enter, str(self.home / "bin/java")]


def version(home):
    """The version in the JDK's `release` file, such as 17.0.15; None if `home` is not a JDK."""
    try:
        stated = re.search(r'^JAVA_VERSION="(.*)"', (home / "release").read_text(encoding="ascii"), re.M)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stated and stated[1]


def major(text):
    return text.removeprefix("1.").split(".")[0]


def on_host():
    """The JDKs of the host, each once, although a home may have several names."""
    homes = sorted({home.resolve() for home in HOST.glob("*") if (home / "bin/java").exists()})
    return [Jdk(home, stated) for home in homes if (stated := version(home))]


def of_root(cache, wanted):
    """The JDK in the root file system for this version."""
    root = cache.directory.parent / "jdk-roots" / wanted
    inside = [home for home in (root / "usr/lib/jvm").glob("*") if not home.is_symlink() and (home / "bin/java").exists()]
    return Jdk(f"/{inside[0].relative_to(root)}", version(inside[0]) or wanted, root) if inside else None


def chosen(cache, wanted, figures):
    """The JDKs that the user chose, by version or by home. Those that are missing here are noted."""
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
    """The path of a tool in the newest of the host's JDKs that has the tool; one JDK's tools work with JVMs of all."""
    having = [jdk for jdk in on_host() if (jdk.home / "bin" / name).exists()]
    if having:
        return str(max(having, key=lambda jdk: int(major(jdk.version))).home / "bin" / name)
    return shutil.which(name) or name


def builds():
    """The command that compiles programs for every JDK from 8 on."""
    return [tool("javac"), "--release", "8", "-Xlint:-options"]
