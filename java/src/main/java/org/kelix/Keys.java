package org.kelix;

/** Keys of tables whose keys are numbers. */
public final class Keys {
    private Keys() {}

    /**
     * The key of a number: its 8 bytes, the highest first. Numbers have no sign, so -1 is the
     * greatest one.
     *
     * @param number the number
     * @return its key
     */
    public static byte[] of(long number) {
        byte[] key = new byte[Long.BYTES];
        for (int at = 0; at < key.length; at++) {
            key[at] = (byte) (number >>> 56 - 8 * at);
        }
        return key;
    }

    /**
     * The number of a key.
     *
     * @param key 8 bytes
     * @return the number
     * @throws KelixException {@link ErrorKind#INVALID_ARGUMENT}: the key has not 8 bytes
     */
    public static long number(byte[] key) {
        if (Block.need(key, "key").length != Long.BYTES) {
            throw KelixException.invalid("a number has 8 bytes, and this key " + key.length);
        }
        long number = 0;
        for (byte each : key) {
            number = number << 8 | each & 0xff;
        }
        return number;
    }
}
