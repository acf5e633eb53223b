/** Truth: with `-Xint`, `copy` spends its time in the native method `System.arraycopy`, and that in the JVM's native code. */
final class Natives {
    private Natives() {}

    static void copy(byte[] from, byte[] to) {
        System.arraycopy(from, 0, to, 0, to.length);
    }

    public static void main(String[] args) {
        byte[] from = new byte[4 << 20];
        byte[] to = new byte[from.length];
        Target.ready();
        while (to[0] == 0) {
            copy(from, to);
        }
    }
}
