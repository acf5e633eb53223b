/** An idle JVM. */
public final class Wait {
    private Wait() {}

    /** Waits until it is killed. */
    public static void main(String[] args) throws InterruptedException {
        Thread.sleep(Long.MAX_VALUE);
    }
}
