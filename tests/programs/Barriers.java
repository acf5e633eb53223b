import java.util.concurrent.ThreadLocalRandom;

/**
 * Truth: all the time goes to `walk`, which reads and writes references of a graph whose objects a concurrent collector
 * moves meanwhile, since half of them are garbage soon: its barriers have work to do.
 */
final class Barriers {
    private static final int NODES = 1 << 19;

    /** What is moved. */
    private static final class Node {
        Node next;
        Node other;
        final long[] bulk = new long[8];
    }

    private static Node[] nodes = new Node[NODES];
    private static long sink;

    private Barriers() {}

    private static long walk(int start) {
        long sum = 0;
        Node node = nodes[start];
        for (int i = 0; i < 4096; i++) {
            Node next = node.next;
            sum += next.bulk[i & 7];
            if ((i & 7) == 0) {
                Node fresh = new Node();
                fresh.next = next.next;
                fresh.other = node;
                next.other = null;
                node.next = fresh;
                nodes[(start + i) & (NODES - 1)] = fresh;
            }
            node = next.next;
        }
        return sum;
    }

    public static void main(String[] args) {
        for (int i = 0; i < NODES; i++) {
            nodes[i] = new Node();
        }
        for (int i = 0; i < NODES; i++) {
            nodes[i].next = nodes[ThreadLocalRandom.current().nextInt(NODES)];
        }
        Target.ready();
        while (sink >= 0) {
            sink += walk(ThreadLocalRandom.current().nextInt(NODES));
        }
    }
}
