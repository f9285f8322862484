package org.kelix;

/**
 * How a walk came to an item, for the first time.
 *
 * @param item the item
 * @param number how many items were visited before
 * @param from the number of the item whose link led here, or -1: the walk began here
 * @param depth how many links from where the walk began
 */
public record Arrival(Item item, long number, long from, int depth) {}
