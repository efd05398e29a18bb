package dev.penstock.jms.tool;

/** So many steps per second, whatever each takes: a step that is late is followed by the next one at once. */
final class Pace {
    private final double perSecond;
    private final long startedNanos = System.nanoTime();
    private long steps;

    /** 0: without a limit. */
    Pace(double perSecond) {
        this.perSecond = perSecond;
    }

    /** Return when the next step is due. */
    void await() throws InterruptedException {
        if (perSecond > 0) {
            long dueNanos = startedNanos + (long) (++steps / perSecond * 1e9);
            Thread.sleep(Math.max(dueNanos - System.nanoTime(), 0) / 1_000_000);
        }
    }
}
