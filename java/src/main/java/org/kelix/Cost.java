package org.kelix;

/**
 * What operations of a session have cost.
 *
 * @param reads one-sided reads
 * @param readBytes bytes that these brought
 * @param messages messages to the server
 * @param retries reads that were repeated because something was being written
 * @param fallbacks reads that became messages
 */
public record Cost(long reads, long readBytes, long messages, long retries, long fallbacks) {}
