package org.kelix;

/**
 * A snapshot that was taken.
 *
 * @param path its file, on the server's host
 * @param bytes how long the file is
 * @param seconds how long it took to write
 */
public record Snapshot(String path, long bytes, double seconds) {}
