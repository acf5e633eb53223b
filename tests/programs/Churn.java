import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.util.function.LongUnaryOperator;

/**
 * Truth: of the time in `applyAsLong`, a quarter goes to `Churn$First` and the rest to `Churn$Other`: classes of the
 * same shape that are loaded in turn, each time by another class loader. Each is gone before the next comes, which may
 * get the same place in memory. A class lives for some ten milliseconds, in the interpreter, or as many times as long
 * as the argument says; `unloaded` is printed each time one is gone. The callers show which of the two a class is:
 * `inFirst` and `inOther`.
 */
final class Churn {
    private static final int UNIT = 20_000;
    private static long sink = 88172645463325252L;

    private Churn() {}

    /** A class that comes and goes. */
    public static final class First implements LongUnaryOperator {
        /** Made by reflection. */
        public First() {}

        @Override
        public long applyAsLong(long x) {
            for (int i = 0; i < UNIT; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
            }
            return x;
        }
    }

    /** Another. */
    public static final class Other implements LongUnaryOperator {
        /** Made by reflection. */
        public Other() {}

        @Override
        public long applyAsLong(long x) {
            for (int i = 0; i < UNIT; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
            }
            return x;
        }
    }

    private static final class Once extends ClassLoader {
        private final String name;
        private final byte[] code;

        Once(String name, byte[] code) {
            super(Churn.class.getClassLoader());
            this.name = name;
            this.code = code;
        }

        Class<?> define() {
            return defineClass(name, code, 0, code.length);
        }
    }

    private static byte[] code(String name) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (InputStream in = Churn.class.getResourceAsStream(name + ".class")) {
            byte[] part = new byte[4096];
            for (int n = in.read(part); n >= 0; n = in.read(part)) {
                out.write(part, 0, n);
            }
        }
        return out.toByteArray();
    }

    private static WeakReference<Class<?>> burn(String name, byte[] code, int rounds) throws Exception {
        Class<?> type = new Once(name, code).define();
        LongUnaryOperator burner = (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
        for (int i = 0; i < rounds; i++) {
            sink = burner.applyAsLong(sink);
        }
        return new WeakReference<>(type);
    }

    private static void burnAndDrop(String name, byte[] code, int rounds) throws Exception {
        WeakReference<Class<?>> gone = burn(name, code, rounds);
        while (gone.get() != null) {
            System.gc();
        }
        Target.say("unloaded");
    }

    private static void inFirst(byte[] code, int rounds) throws Exception {
        burnAndDrop("Churn$First", code, rounds);
    }

    private static void inOther(byte[] code, int rounds) throws Exception {
        burnAndDrop("Churn$Other", code, rounds);
    }

    public static void main(String[] args) throws Exception {
        int times = args.length > 0 ? Integer.parseInt(args[0]) : 1;
        byte[] first = code("Churn$First");
        byte[] other = code("Churn$Other");
        Target.ready();
        while (sink != 0) {
            inFirst(first, 20 * times);
            inOther(other, 60 * times);
        }
    }
}
