/**
 * Truth: all the time is under `sum`, a native method of fields.c, which reads a field again and again by a function of its
 * own; JNI's way to read one is generated code that native code calls.
 */
final class Fields {
    private int field = 3;

    private Fields() {}

    native int sum(int reads);

    public static void main(String[] args) {
        System.load(System.getProperty("java.class.path") + "/libfields.so");
        Fields fields = new Fields();
        int sum = fields.sum(1_000_000) + fields.field;
        Target.ready();
        while (sum != 0) {
            sum = fields.sum(1_000_000) | 1;
        }
    }
}
