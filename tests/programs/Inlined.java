/** A chain of inlined calls that ends in a real one. Line and bytecode numbers are known to tests/end_to_end/agent. */
public class Inlined {
    static int state;

    static int sink(int x) {
        return state += x;
    }

    static int leaf(int x) {
        return sink(x) * 31;
    }

    static int middle(int x) {
        return leaf(x) + 1;
    }

    static int top(int x) {
        return middle(x) + 2;
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 200_000; i++) {
            top(i);
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            for (int i = 0; i < 200_000; i++) {
                top(i);
            }
            allocate();
            System.out.println("again");
        }
    }

    static Object kept;

    /** So much that a sampler of allocations has a sample. */
    static void allocate() {
        for (int i = 0; i < 64; i++) {
            kept = new byte[1 << 20];
        }
    }
}
