package org.kelix;

import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/**
 * What keys or values of a type are as bytes. It is used by any number of threads. Of keys it has
 * to give equal keys equal bytes, and the order of an ordered table is that of the bytes.
 *
 * @param <T> the type
 */
public interface Codec<T> {
    /**
     * The bytes of an object.
     *
     * @param object the object, which is not null
     * @return its bytes
     */
    byte[] encode(T object);

    /**
     * The object with these bytes.
     *
     * @param bytes the bytes
     * @return the object
     */
    T decode(byte[] bytes);

    /**
     * A codec of two functions.
     *
     * @param encode makes bytes
     * @param decode makes objects
     * @param <T> the type
     * @return the codec
     */
    static <T> Codec<T> of(
            Function<? super T, byte[]> encode, Function<byte[], ? extends T> decode) {
        Block.need(encode, "function");
        Block.need(decode, "function");
        return new Codec<>() {
            @Override
            public byte[] encode(T object) {
                return encode.apply(object);
            }

            @Override
            public T decode(byte[] bytes) {
                return decode.apply(bytes);
            }
        };
    }

    /**
     * Bytes as they are. Arrays of Java are equal only to themselves, which a map's operations do
     * not mind, and collections that keys are put into do.
     *
     * @return the codec
     */
    static Codec<byte[]> bytes() {
        return of(bytes -> bytes, bytes -> bytes);
    }

    /**
     * Text as UTF-8.
     *
     * @return the codec
     */
    static Codec<String> strings() {
        return of(
                text -> Block.name(text, "text"),
                bytes -> new String(bytes, StandardCharsets.UTF_8));
    }

    /**
     * Numbers as 8 bytes, the highest first: keys of tables whose keys are numbers, which have no
     * sign and no other order than that.
     *
     * @return the codec
     */
    static Codec<Long> numbers() {
        return of(Keys::of, Keys::number);
    }
}
