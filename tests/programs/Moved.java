/**
 * Truth: all the time goes to `hot`, whose code moves: each phase takes a branch that never ran before, which the
 * compiler had left out, so that the code is thrown away and compiled again somewhere else. Run with
 * `-XX:+PrintCompilation` (the test counts how often `Moved::hot` was made not entrant) and
 * `-XX:CompileCommand=dontinline,Moved::hot`.
 */
final class Moved {
    private static long sink = 88172645463325252L;

    private Moved() {}

    static long hot(long x, int phase, int rounds) {
        for (int i = 0; i < rounds; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            if ((x & 7) == 3) {
                switch (phase) {
                    case 0: x += 1; break;
                    case 1: x *= 3; break;
                    case 2: x -= 5; break;
                    case 3: x ^= 7; break;
                    case 4: x += 9 * x; break;
                    case 5: x = ~x; break;
                    case 6: x = -x; break;
                    case 7: x += x >>> 3; break;
                    default: x ^= phase; break;
                }
            }
        }
        return x;
    }

    public static void main(String[] args) {
        for (int i = 0; i < 3_000; i++) {
            sink = hot(sink | 1, 0, 20_000);
        }
        Target.ready();
        for (int phase = 0; ; phase++) {
            long end = System.nanoTime() + 400_000_000L;
            while (System.nanoTime() < end) {
                sink = hot(sink | 1, phase, 200_000);
            }
        }
    }
}
