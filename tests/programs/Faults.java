import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;

/**
 * Truth: `main` calls `Phase.run`, which calls `Phase.work`. Callees leave compiled code in each way that faults and
 * false assumptions cause: they read fields of null (a SIGSEGV in compiled code, or a trap that deoptimizes it), and a
 * second class joins the only class that a call could reach. Each phase has fresh classes, so all begins again.
 * Run with `-XX:-OmitStackTraceInFastThrow`, or C2 throws one exception again and again and faults no more, and with
 * `-XX:CompileCommand=dontinline,Faults*::*`.
 */
final class Faults {
    private Faults() {}

    static class Base {
        long field = 3;

        long step(long x) {
            return x * field + 1;
        }
    }

    static final class Derived extends Base {
        @Override
        long step(long x) {
            return x * field - 1;
        }
    }

    static final class Phase implements Runnable {
        private static final long HALF = 100_000_000L;
        private static long sink = 1;

        /** So small that C1 alone compiles it: after the signal handler, a stub throws the exception. */
        static long read(Base from) {
            return from.field;
        }

        /** C2 compiles it, and leaves the effect of a fault to the interpreter. */
        static long trap(Base from, long x) {
            return x % 7 == 0 ? from.field : from.field / (x | 1);
        }

        static long work(Base base, long x) {
            for (int i = 0; i < 200; i++) {
                x = base.step(x);
                try {
                    x += read(i % 100 == 0 ? null : base) + trap(i % 100 == 50 ? null : base, x);
                } catch (NullPointerException expected) {
                    x++;
                }
            }
            return x;
        }

        private static void half(Base base) {
            for (long end = System.nanoTime() + HALF; System.nanoTime() < end; ) {
                sink = work(base, sink);
            }
        }

        @Override
        public void run() {
            half(new Base());
            // From here on, code that was compiled for the one class is invalid.
            half(new Derived());
        }
    }

    /** Defines its own classes with the same names. */
    static final class Fresh extends ClassLoader {
        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            boolean own = name.startsWith("Faults$");
            Class<?> known = findLoadedClass(name);
            return known != null ? known : own ? define(name) : super.loadClass(name, resolve);
        }

        private Class<?> define(String name) throws ClassNotFoundException {
            try (InputStream in = Faults.class.getResourceAsStream(name + ".class")) {
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                for (int b = in.read(); b >= 0; b = in.read()) {
                    bytes.write(b);
                }
                return defineClass(name, bytes.toByteArray(), 0, bytes.size());
            } catch (IOException e) {
                throw new ClassNotFoundException(name, e);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        for (long phase = 0; ; phase++) {
            Class<?> fresh = new Fresh().loadClass("Faults$Phase");
            java.lang.reflect.Constructor<?> constructor = fresh.getDeclaredConstructor();
            constructor.setAccessible(true);
            ((Runnable) constructor.newInstance()).run();
            if (phase == 1) {
                Target.ready();
            }
        }
    }
}
