import java.security.MessageDigest;

/** Truth: nearly all time of the main thread goes to SHA-256, by `hash` and `round`: to a stub that HotSpot chooses by CPU. */
final class Hashes {
    private static final byte[] BYTES = new byte[20_000];

    private Hashes() {}

    static void hash(MessageDigest sha) {
        sha.update(BYTES);
        byte[] digest = sha.digest();
        System.arraycopy(digest, 0, BYTES, 0, digest.length);
    }

    static void round(MessageDigest sha) {
        hash(sha);
    }

    public static void main(String[] args) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        for (int i = 0; i < 2_000; i++) {
            round(sha);
        }
        Target.ready();
        while (BYTES.length > 0) {
            round(sha);
        }
    }
}
