import java.util.function.LongUnaryOperator;

/** Keeps its compiled methods busy until it is killed; says "ready" when the first of them is compiled. */
public final class Spin {
    static long step(long x) {
        return x * 6364136223846793005L + 1442695040888963407L;
    }

    static long turn(long x) {
        LongUnaryOperator f = Spin::step;
        for (int i = 0; i < 1000; i++) {
            x = f.applyAsLong(x) ^ (x >>> 7);
        }
        return x;
    }

    public static void main(String[] args) throws Exception {
        long x = 1;
        for (int i = 0; i < 20_000; i++) {
            x = turn(x);
        }
        System.out.println("ready");
        System.out.flush();
        while (x != 0) {
            x = turn(x);
            Thread.sleep(1);
        }
    }
}
