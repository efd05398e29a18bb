package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Queues over a restart, and on a broker that makes nothing by itself. */
@DisplayName("Queues and restarts")
class QueueRestartTest extends OwnBrokerCase {
    private static final String LIMIT = "amqp:resource-limit-exceeded";

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Order, priorities, selectors and what was acknowledged survive a restart")
    void survives(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String text : List.of("eu4", "us4", "eu9", "us1", "eu1")) {
                TextMessage message = session.createTextMessage(text);
                message.setStringProperty("region", text.substring(0, 2));
                producer.setPriority(text.charAt(2) - '0');
                producer.send(message);
            }
        }
        Session unacknowledged = open(failover("jms.prefetchPolicy.all=1")).createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer eu = unacknowledged.createConsumer(queue, "region = 'eu'");
        next(eu).acknowledge();
        assertEquals("eu4", text(eu));
        publish(unacknowledged, session.createQueue("other"), "what was acknowledged before is on disk now");

        broker.restart(ending);
        Message again = next(eu);
        assertEquals("eu4", again.getBody(String.class), "9 is acknowledged, 4 is not");
        assertTrue(again.getJMSRedelivered());
        again.acknowledge();
        assertEquals(List.of("us4", "us1", "eu1").subList(0, 2), browsed(session, queue, "region = 'us'"));
        next(eu).acknowledge();
        assertEquals(List.of("us4", "us1"), texts(own().createConsumer(queue), 2));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("With auto-creation off an unknown queue is an InvalidDestinationException; a declared one works and stays")
    void declared(Ending ending) throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {}}");
        Session session = own();
        Queue unknown = session.createQueue("unknown");
        for (int i = 0; i < 2; i++) {
            assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createConsumer(unknown));
            assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createProducer(unknown));
            assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> browsed(session, unknown));
            if (i == 0) {
                publish(session, session.createQueue("work"), "1", "2");
                broker.restart(ending);
            }
        }
        Queue work = session.createQueue("work");
        assertEquals(List.of("1", "2"), browsed(session, work));
        assertEquals(List.of("1", "2"), texts(session.createConsumer(work), 2));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A full queue that rejects is a ResourceAllocationException, also after a restart, until there is room")
    void full(Ending ending) throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {limits: {maxMessages: 1, overflow: Reject}}}");
        Session session = own();
        Queue queue = session.createQueue("work");
        publish(session, queue, "1");
        assertRefused(ResourceAllocationException.class, LIMIT, () -> publish(session, queue, "2"));
        broker.restart(ending);
        assertRefused(ResourceAllocationException.class, LIMIT, () -> publish(session, queue, "2"));
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("1", text(consumer));
        publish(session, queue, "3");
        assertEquals("3", text(consumer));
    }

    @Test
    @DisplayName("An exclusive queue serves one consumer; the next takes over when it leaves, also over a kill -9")
    void exclusive() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {delivery: {exclusiveConsumer: true}}}");
        Session session = own();
        Queue queue = session.createQueue("work");
        MessageConsumer first = session.createConsumer(queue);
        Session other = own();
        MessageConsumer second = other.createConsumer(queue);
        publish(own(), queue, "1", "2");
        assertEquals(List.of("1", "2"), texts(first, 2));
        assertNothing(second);
        first.close();
        publish(own(), queue, "3");
        assertEquals("3", text(second));
        publish(other, queue, "4"); // on the consumer's connection: its acknowledgement is on disk when this returns

        broker.kill();
        broker.start();
        assertEquals("4", text(second));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A group whose consumer fails over stays in order")
    void groups(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 1; i <= 4; i++) {
            TextMessage message = session.createTextMessage("a" + i);
            message.setStringProperty("JMSXGroupID", "a");
            if (i == 3) {
                assertEquals("a1", text(consumer));
            }
            try (MessageProducer producer = session.createProducer(queue)) {
                producer.send(message); // what the same connection acknowledged before is on disk when this returns
            }
            if (i == 3) {
                broker.restart(ending);
            }
        }
        assertEquals(List.of("a2", "a3", "a4"), texts(consumer, 3));
    }
}
