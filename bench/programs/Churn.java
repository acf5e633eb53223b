import java.io.IOException;
import java.io.InputStream;
import java.util.function.IntUnaryOperator;

/** Loads and unloads classes: the same class again and again, each time in a new loader, long enough to be compiled. */
public final class Churn {
    /** The class that each round loads. */
    public static final class Work implements IntUnaryOperator {
        @Override
        public int applyAsInt(int x) {
            int y = x;
            for (int i = 0; i < 200; i++) {
                y = y * 31 + (y >>> 7);
            }
            return y;
        }
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass(Work.class.getName(), bytes, 0, bytes.length);
        }
    }

    private Churn() {}

    public static void main(String[] args) throws Exception {
        // The pause keeps a host of such programs busy, but not overloaded.
        int pause = args.length > 0 ? Integer.parseInt(args[0]) : 100;
        byte[] bytes = bytesOfWork();
        int sum = 0;
        for (int round = 0; ; round++) {
            Object work = new Loader().define(bytes).getDeclaredConstructor().newInstance();
            IntUnaryOperator operator = (IntUnaryOperator) work;
            for (int i = 0; i < 20_000; i++) {
                sum += operator.applyAsInt(i);
            }
            if (round % 50 == 49) {
                System.gc();
            }
            Thread.sleep(pause);
            if (sum == 42) {
                System.out.println(sum);
            }
        }
    }

    private static byte[] bytesOfWork() throws IOException {
        try (InputStream in = Churn.class.getResourceAsStream("Churn$Work.class")) {
            byte[] bytes = new byte[1 << 16];
            int length = 0;
            for (int n; (n = in.read(bytes, length, bytes.length - length)) > 0; ) {
                length += n;
            }
            return java.util.Arrays.copyOf(bytes, length);
        }
    }
}
