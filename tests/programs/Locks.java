import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Pairs of threads, each with a lock of its own: one thread has the lock and sleeps, the other one waits for it. So the
 * owner of a lock is always the other thread of the pair. One more pair is in a deadlock.
 */
public class Locks {
    static class Cache { }

    static class Index { }

    static class Left { }

    static class Right { }

    static final Object CACHE = new Cache();
    static final Object INDEX = new Index();
    static final Object BYTES = new byte[0];
    static final ReentrantLock LOCK = new ReentrantLock(true);
    static final Object LEFT = new Left();
    static final Object RIGHT = new Right();
    static final CountDownLatch BOTH = new CountDownLatch(2);
    /** Keeps collectors at work, so that objects move. */
    static volatile Object garbage;

    static void enterCache() {
        synchronized (CACHE) {
            nap(4);
        }
    }

    static void enterIndex() {
        synchronized (INDEX) {
            nap(15);
        }
    }

    static void enterBytes() {
        synchronized (BYTES) {
            nap(4);
        }
    }

    static void takeLock(int ms) {
        LOCK.lock();
        try {
            nap(ms);
        } finally {
            LOCK.unlock();
        }
    }

    /** Takes the other lock when both threads have one: never. */
    static void deadlock(Object own, Object other) {
        synchronized (own) {
            BOTH.countDown();
            try {
                BOTH.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            synchronized (other) {
                throw new IllegalStateException("no deadlock");
            }
        }
    }

    static void waitForNews() {
        synchronized (LOCK) {
            try {
                LOCK.wait(10);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    static void nap(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void allocate() {
        for (int i = 0; i < 20; i++) {
            garbage = new byte[64 << 10];
        }
        nap(20);
    }

    static void start(String name, Runnable step) {
        Thread thread = new Thread(() -> {
            while (true) {
                step.run();
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] args) throws Exception {
        for (String number : new String[] { "one", "two" }) {
            start("cache-user-" + number, Locks::enterCache);
            start("index-user-" + number, Locks::enterIndex);
            start("bytes-user-" + number, Locks::enterBytes);
        }
        // The lock is fair: the threads have it in turn, the second one four times as long.
        start("lock-user-one", () -> takeLock(3));
        start("lock-user-two", () -> takeLock(12));
        start("news-reader", Locks::waitForNews);
        start("allocator", Locks::allocate);
        start("deadlock-one", () -> deadlock(LEFT, RIGHT));
        start("deadlock-two", () -> deadlock(RIGHT, LEFT));
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
}
