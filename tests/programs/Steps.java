import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.function.LongUnaryOperator;

/**
 * Calls of all sorts in a short round, again and again, without anything to collect: of one method out of itself, through
 * classes and interfaces with one and with many implementations, by method handles, into the JVM and into its stubs. `warm`
 * rounds come first.
 */
final class Steps {
    private static final Shape[] SHAPES = {new Square(), new Line(), new Circle(), new Square()};
    private static final long[] FROM = new long[64];
    private static final long[] TO = new long[64];
    private static final Object[] THINGS = {"a", 1, SHAPES, TO};
    private static final MethodHandle LEAF = leafHandle();
    private static long sink = 88172645463325252L;

    private Steps() {}

    private static MethodHandle leafHandle() {
        try {
            MethodType type = MethodType.methodType(long.class, long.class);
            return MethodHandles.lookup().findStatic(Steps.class, "leaf", type);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    interface Shape {
        long area(long x);
    }

    static class Square implements Shape {
        public long area(long x) {
            return x * x;
        }
    }

    static final class Line implements Shape {
        public long area(long x) {
            return x + 1;
        }
    }

    static final class Circle implements Shape {
        public long area(long x) {
            return x * 355 / 113;
        }
    }

    static long down(int depth, long x) {
        return depth <= 1 ? leaf(x) + depth : down(depth - 1, x) - depth;
    }

    static long leaf(long x) {
        return x ^ x << 13;
    }

    static synchronized long locked(long x) {
        return leaf(x) + 1;
    }

    static double real(double x, float y, long z, int n) {
        return Math.sin(x) * y + z % (n | 1);
    }

    static int kinds() {
        int found = 0;
        for (Object thing : THINGS) {
            found += thing instanceof Comparable ? 1 : thing instanceof Shape[] ? 2 : 0;
        }
        return found;
    }

    static long handled(long x) {
        LongUnaryOperator captured = y -> y - x;
        try {
            return (long) LEAF.invokeExact(captured.applyAsLong(x));
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static long round(long x) {
        for (Shape shape : SHAPES) {
            x += shape.area(x);
        }
        System.arraycopy(FROM, 0, TO, (int) (x & 7), 40);
        x += down(5, x) + locked(x) + handled(x) + kinds() + (long) real(x, 1.5f, x, (int) x);
        x ^= System.nanoTime() + TO.clone().length + Thread.currentThread().getPriority();
        return x | 1;
    }

    public static void main(String[] args) {
        for (int i = Integer.parseInt(args[0]); i > 0; i--) {
            sink = round(sink);
        }
        Target.ready();
        while (sink != 0) {
            sink = round(sink);
        }
    }
}
