package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code MessageProducer.setDeliveryDelay}: a provider must not deliver a message before its delivery time. */
@DisplayName("Delayed delivery")
class DelayTest extends OwnBrokerCase {
    private static void send(Session session, Destination destination, String text, long delay) throws JMSException {
        try (MessageProducer producer = session.createProducer(destination)) {
            producer.setDeliveryDelay(delay);
            producer.send(session.createTextMessage(text));
        }
    }

    private static void assertNotEarly(String text, Message message) throws JMSException {
        long now = System.currentTimeMillis();
        assertEquals(text, message.getBody(String.class));
        assertTrue(now >= message.getJMSDeliveryTime(), text + " came before its time");
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @DisplayName("Delayed ones come when they are due, those without delay at once; to a queue, and to a topic")
    void ordered(boolean toQueue) throws Exception {
        startBroker();
        Session session = own();
        Destination destination = toQueue ? session.createQueue("work") : session.createTopic("orders");
        MessageConsumer consumer = toQueue
                ? session.createConsumer(destination)
                : session.createSharedDurableConsumer((Topic) destination, "s");
        Session sending = own();
        send(sending, destination, "in an hour", 3_600_000);
        send(sending, destination, "at once", 0);
        assertNotEarly("at once", next(consumer));
        send(sending, destination, "late", 3000);
        send(sending, destination, "soon", 1500);
        long sent = System.currentTimeMillis();
        Message first = next(consumer);
        assertNotEarly(first.getBody(String.class), first);
        Message second = next(consumer);
        assertNotEarly(second.getBody(String.class), second);
        assertEquals(Set.of("soon", "late"), Set.of(first.getBody(String.class), second.getBody(String.class)));
        // Where sending takes seconds the first may have been due before the second was there.
        assertTrue(first.getJMSDeliveryTime() <= second.getJMSDeliveryTime() || first.getJMSDeliveryTime() <= sent);
        assertNothing(consumer);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Delayed messages survive a restart, with their times, on queues and subscriptions without consumers")
    void restart(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        Topic topic = session.createTopic("orders");
        session.createSharedDurableConsumer(topic, "s").close();
        send(session, queue, "late", 4000);
        send(session, queue, "soon", 2500);
        send(session, topic, "order", 2500);
        publish(session, queue, "at once");

        broker.restart(ending);
        MessageConsumer worker = own().createConsumer(queue);
        Set<String> received = new HashSet<>(); // in an order that depends on how long the restart took
        for (int i = 0; i < 3; i++) {
            Message message = next(worker);
            received.add(message.getBody(String.class));
            assertNotEarly(message.getBody(String.class), message);
        }
        assertEquals(Set.of("at once", "soon", "late"), received);
        assertNotEarly("order", next(own().createSharedDurableConsumer(topic, "s")));
        assertNothing(worker);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A delayed message that was sent in a transaction is delayed after commit, restart or not")
    void transacted(Ending ending) throws Exception {
        startBroker();
        Session session = open(failover()).createSession(Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("work");
        send(session, queue, "later", 1500);
        session.commit();
        broker.restart(ending);
        assertNotEarly("later", next(own().createConsumer(queue)));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @DisplayName("Who subscribes between sending and delivery does not get it: it was routed when it was published")
    void routedWhenPublished(boolean shared) throws Exception {
        startBroker();
        Session session = own();
        Topic topic = session.createTopic("orders");
        MessageConsumer before = session.createSharedDurableConsumer(topic, "before");
        send(own(), topic, "order", 500);
        MessageConsumer after =
                shared ? session.createSharedDurableConsumer(topic, "after") : session.createConsumer(topic);
        assertNotEarly("order", next(before));
        assertEquals(List.of(), rest(after));
    }

    @Test
    @DisplayName("Selectors hold for delayed messages: of a subscription, and of a queue's consumers, over a restart")
    void selected() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: work, body: {}}
                """);
        Session session = own();
        Queue queue = session.createQueue("work");
        Topic topic = session.createTopic("orders");
        session.createSharedDurableConsumer(topic, "s", "region = 'eu'").close();
        for (Destination destination : List.of(queue, topic)) {
            try (MessageProducer producer = session.createProducer(destination)) {
                producer.setDeliveryDelay(2000);
                for (String region : List.of("us", "eu")) {
                    Message message = session.createTextMessage(region);
                    message.setStringProperty("region", region);
                    producer.send(message);
                }
            }
        }
        broker.restart(Ending.KILLED);
        MessageConsumer eu = own().createConsumer(queue, "region = 'eu'");
        assertNotEarly("eu", next(eu));
        assertNotEarly("eu", next(own().createSharedDurableConsumer(topic, "s", "region = 'eu'")));
        assertNothing(eu);
        assertNotEarly("us", next(own().createConsumer(queue)));
    }
}
