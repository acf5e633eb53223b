/**
 * A program with many compiled methods that allocates nothing and measures its own pauses.
 *
 * <p>Arguments: the number of classes {@code Methods0…} on the class path (generated, see hiccup.py). When all are
 * warm, the program prints {@code warm}, and then, for each second, {@code worst MICROSECONDS}: the longest time
 * between two steps that take microseconds each.
 */
public final class Hiccup {
    private static final long WINDOW = 1_000_000_000L;
    private static final int WARM_ROUNDS = 20_000;

    private Hiccup() {}

    /** The interface of each generated class. */
    public interface Step {
        /** Calls each method of the class once. */
        int run(int seed);
    }

    /** Runs until it is killed. */
    public static void main(String[] args) throws ReflectiveOperationException {
        Step[] steps = new Step[Integer.parseInt(args[0])];
        for (int i = 0; i < steps.length; i++) {
            steps[i] = (Step) Class.forName("Methods" + i).getDeclaredConstructor().newInstance();
        }
        int result = 1;
        for (int round = 0; round < WARM_ROUNDS; round++) {
            for (Step step : steps) {
                result = step.run(result);
            }
        }
        System.out.println("warm " + result);
        while (true) {
            System.out.println("worst " + window(steps) / 1000);
        }
    }

    private static long window(Step[] steps) {
        int result = 1;
        long worst = 0;
        long begin = System.nanoTime();
        long last = begin;
        for (int i = 0; last - begin < WINDOW; i = (i + 1) % steps.length) {
            result = steps[i].run(result);
            long now = System.nanoTime();
            worst = Math.max(worst, now - last);
            last = now;
        }
        return result == 0 ? 0 : worst;
    }
}
