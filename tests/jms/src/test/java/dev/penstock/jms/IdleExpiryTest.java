package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code delivery.idleExpirySeconds}: subscriptions that clients made and left behind, docs/concepts/messages.md. */
@DisplayName("Subscriptions left behind")
class IdleExpiryTest extends OwnBrokerCase {
    private static final String SUBSCRIPTION = "penstock.subscription";
    private static final String LEFT = "psub:durable:global:left";
    private static final int SECONDS = 20; // much longer than a consumer needs to find a broker again that has started

    @Test
    @DisplayName("One unused for so long ends with its messages, over a restart too; those in use and declared ones stay")
    void ends() throws Exception {
        startBroker(true, Management.EVERYTHING + "delivery: {idleExpirySeconds: " + SECONDS + "}\n");
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - type: penstock.subscription
                  body:
                    subscriptionName: declared
                    owner: {clusterId: c, kind: Subscription, namespace: n, name: declared, uid: u, deletionPolicy: Retain}
                    exchange: orders
                """);
        Session session = own();
        Topic topic = session.createTopic("orders");
        MessageConsumer used = session.createSharedDurableConsumer(topic, "used");
        session.createSharedDurableConsumer(topic, "left").close();
        publish(session, topic, "order");
        broker.restart(Ending.KILLED);

        Management management = new Management(open(failover()));
        MessageConsumer nobody = session.createConsumer(session.createQueue("nothing comes here"));
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SOON);
        while (management.request("READ", SUBSCRIPTION, LEFT, Map.of()).status() == 200) {
            assertTrue(System.nanoTime() < deadline, "it is still there");
            nobody.receive(100); // and looks again
        }
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.unsubscribe("left"));
        assertEquals("order", text(used));
        assertEquals("order", text(session.createSharedDurableConsumer(topic, "declared")));
    }

    @Test
    @DisplayName("Without the setting nothing ends, and since when it has been unused is told over restarts")
    void offByDefault() throws Exception {
        startBroker(true, Management.EVERYTHING);
        long before = System.currentTimeMillis();
        Session session = own();
        Topic topic = session.createTopic("orders");
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, "left");
        assertEquals(-1, unusedSince());
        consumer.close();
        broker.restart(Ending.TERMINATED);
        long since = unusedSince();
        assertTrue(since >= before && since <= System.currentTimeMillis(), () -> "unused since " + since);
    }

    private long unusedSince() throws Exception {
        return new Management(open(failover())).request("READ", SUBSCRIPTION, LEFT, Map.of()).number("unusedSinceMs");
    }
}
