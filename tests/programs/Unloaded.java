import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;

/**
 * Truth: nearly all the time goes to `Unloaded$Burner.applyAsLong`, each time of another class loader, which is dropped
 * when the method has been hot; `unloaded` is printed each time the class is gone. Half of the classes that the
 * profile names do not exist any more when it is written. With a number as argument so many loaders with a class each
 * stay all the time.
 */
final class Unloaded {
    private static final List<Class<?>> STAYING = new ArrayList<>();
    /** CPU time: a busy machine makes the life of a class longer, and changes nothing in it. */
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    private static long sink = 88172645463325252L;

    private Unloaded() {}

    /** The class that comes and goes. */
    public static final class Burner implements LongUnaryOperator {
        /** Made by reflection. */
        public Burner() {}

        @Override
        public long applyAsLong(long x) {
            for (int i = 0; i < 200_000; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
            }
            return x;
        }
    }

    private static final class Once extends ClassLoader {
        private final byte[] code;

        Once(byte[] code) {
            super(Unloaded.class.getClassLoader());
            this.code = code;
        }

        Class<?> define() {
            return defineClass("Unloaded$Burner", code, 0, code.length);
        }
    }

    private static byte[] code() throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (InputStream in = Unloaded.class.getResourceAsStream("Unloaded$Burner.class")) {
            byte[] part = new byte[4096];
            for (int n = in.read(part); n >= 0; n = in.read(part)) {
                out.write(part, 0, n);
            }
        }
        return out.toByteArray();
    }

    private static WeakReference<Class<?>> burn(byte[] code) throws Exception {
        Class<?> type = new Once(code).define();
        LongUnaryOperator burner = (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
        long end = CLOCK.getCurrentThreadCpuTime() + 700_000_000L;
        while (CLOCK.getCurrentThreadCpuTime() < end) {
            sink = burner.applyAsLong(sink);
        }
        return new WeakReference<>(type);
    }

    public static void main(String[] args) throws Exception {
        byte[] code = code();
        for (int n = args.length > 0 ? Integer.parseInt(args[0]) : 0; n > 0; n--) {
            STAYING.add(new Once(code).define());
        }
        burn(code);
        Target.ready();
        while (sink != 0) {
            WeakReference<Class<?>> gone = burn(code);
            while (gone.get() != null) {
                System.gc();
                System.runFinalization();
            }
            Target.say("unloaded");
        }
    }
}
