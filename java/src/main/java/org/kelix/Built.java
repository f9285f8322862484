package org.kelix;

/**
 * A generation of a dataset that was built.
 *
 * @param generation its number
 * @param items items in all tables
 * @param links links in them
 * @param overlays of the items, those that clients had put into the generation before
 * @param dangling links whose target is not there
 */
public record Built(long generation, long items, long links, long overlays, long dangling) {}
