import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.math.BigInteger;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.RandomAccess;
import java.util.zip.CRC32;

/**
 * Truth: who calls whom. `round` calls each of the other methods, which stand for the sorts of calls and of code that
 * HotSpot knows: compiled and interpreted, virtual, through interfaces, method handles, reflection and native code and
 * back, with exceptions, through stubs of its own and of the C library. Below `round`, a method whose name ends with
 * `To` stands directly above the one that is named before it (only `leaf` calls `leafTo`).
 * Run with `-XX:CompileCommand=dontinline,Calls*::*`, so that each is a frame of the machine's stack, and with
 * `-Dsun.reflect.inflationThreshold=2147483647 -Djdk.reflect.useNativeAccessorOnly=true`, so that reflection goes through
 * native code.
 */
final class Calls {
    private static long sink = 88172645463325252L;
    private static final byte[] BYTES = new byte[20_000];
    private static final byte[] COPY = new byte[20_000];
    private static final Object[] THINGS = {"a", 1, 2L, new ArrayList<Long>(), 'c', new HashMap<Long, Long>(), 1.5};
    private static final MessageDigest SHA;
    private static final MethodHandle HANDLE;
    private static final Method METHOD;
    private static final Shape[] SHAPES = {new Square(), new Line(), new Circle(), new Point()};
    private static BigInteger big = BigInteger.ONE.shiftLeft(4_000).subtract(BigInteger.TEN);

    static {
        try {
            SHA = MessageDigest.getInstance("SHA-256");
            MethodType type = MethodType.methodType(long.class, long.class);
            HANDLE = MethodHandles.lookup().findStatic(Calls.class, "handleTo", type);
            METHOD = Calls.class.getDeclaredMethod("reflectTo", long.class);
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private Calls() {}

    interface Shape {
        long shapeTo(long x);
    }

    static final class Square implements Shape {
        public long shapeTo(long x) {
            return x * x;
        }
    }

    static final class Line implements Shape {
        public long shapeTo(long x) {
            return x + 1;
        }
    }

    static final class Circle implements Shape {
        public long shapeTo(long x) {
            return x ^ 31;
        }
    }

    static final class Point implements Shape {
        public long shapeTo(long x) {
            return x;
        }
    }

    static long leafTo(long x) {
        return x ^ x << 13;
    }

    static long leaf(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x += leafTo(x);
        }
        return x;
    }

    static long deep(int depth, long x) {
        return depth == 0 ? x + 1 : deep(depth - 1, x + depth) + 1;
    }

    static long shape(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x += SHAPES[i & 3].shapeTo(x);
        }
        return x;
    }

    static long kind(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            Object thing = THINGS[i % THINGS.length];
            x += thing instanceof RandomAccess ? 1 : thing instanceof Map ? 2 : thing instanceof Comparable ? 3 : 4;
        }
        return x;
    }

    static long failTo(int depth, long x) {
        if (depth == 0) {
            throw new IllegalStateException();
        }
        return failTo(depth - 1, x) + 1;
    }

    static long fail(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            try {
                x += failTo(8, x);
            } catch (IllegalStateException expected) {
                x++;
            }
        }
        return x;
    }

    static long copy(int n) {
        for (int i = 0; i < n; i++) {
            System.arraycopy(BYTES, 0, COPY, i & 7, 19_000);
            Arrays.fill(BYTES, (byte) i);
        }
        return COPY[n & 1023];
    }

    static long numbers(int n) {
        double x = n;
        for (int i = 0; i < n; i++) {
            x = Math.sin(x) + Math.cos(x) + Math.pow(Math.abs(x), 0.3) + Math.exp(x / 9) + Math.log(Math.abs(x) + 1);
        }
        return (long) (x * 1000);
    }

    static long digest(int n) {
        CRC32 crc = new CRC32();
        long x = 0;
        for (int i = 0; i < n; i++) {
            crc.update(BYTES, 0, 9_000);
            SHA.update(BYTES, 0, 2_000);
            x += crc.getValue() + SHA.digest()[0];
            big = big.multiply(big).shiftRight(4_000).setBit(3_999);
        }
        return x + big.intValue();
    }

    static long text(int n) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < n; i++) {
            text.append(i * 7).append(',');
        }
        return text.indexOf("-1") + text.toString().hashCode() + new String(BYTES, 0, 50).compareTo("b");
    }

    static long objects(int n) {
        Map<Integer, List<Integer>> map = new HashMap<>();
        for (int i = 0; i < n; i++) {
            map.computeIfAbsent(i * 31, k -> new ArrayList<>()).add(i);
        }
        return map.hashCode();
    }

    static long handleTo(long x) {
        return x * 3 + 1;
    }

    static long handle(int n) throws Throwable {
        long x = n;
        for (int i = 0; i < n; i++) {
            x += (long) HANDLE.invokeExact(x);
        }
        return x;
    }

    static long reflectTo(long x) {
        return x * 5 + 1;
    }

    static long reflect(int n) throws Exception {
        long x = n;
        for (int i = 0; i < n; i++) {
            x += (Long) METHOD.invoke(null, x);
        }
        return x;
    }

    static long clock(int n) {
        long x = 0;
        for (int i = 0; i < n; i++) {
            x += System.nanoTime() + Thread.currentThread().hashCode();
        }
        return x;
    }

    static synchronized long lock(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            synchronized (THINGS) {
                x += leafTo(x);
            }
        }
        return x;
    }

    static long round(int n) throws Throwable {
        long x = 0;
        for (int i = 0; i < n; i++) {
            x += deep(200, i);
        }
        return x + leaf(40 * n) + shape(20 * n) + kind(20 * n) + fail(n) + copy(n) + numbers(4 * n)
                + digest(n / 4) + text(4 * n) + objects(4 * n) + handle(10 * n) + reflect(2 * n) + clock(4 * n)
                + lock(4 * n);
    }

    public static void main(String[] args) throws Throwable {
        int rounds = Integer.parseInt(args[0]);
        for (int i = 0; i < rounds; i++) {
            sink += round(20);
        }
        Target.ready();
        while (sink != 0) {
            sink += round(20);
        }
    }
}
