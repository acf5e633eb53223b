"""Truth: burn10, burn20, burn30 and burn40 take 10, 20, 30 and 40 %, as in Shares.java: of the time in which they or what
they call run, since it is the interpreter that burns. The program does not
notice that its parent ended: the test kills it."""


def burn(x, n):
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def burn10(x, n):
    return burn(x, n)


def burn20(x, n):
    return burn(x, 2 * n)


def burn30(x, n):
    return burn(x, 3 * n)


def burn40(x, n):
    return burn(x, 4 * n)


def round(x):
    n = 2000 + (x >> 18)
    return burn40(burn30(burn20(burn10(x, n), n), n), n)


sink = 88172645
print("ready", flush=True)
while True:
    sink = round(sink)
