package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Who gets a message: fair among the links of a subscription, never beyond their credit (the JMS prefetch). */
@DisplayName("Dispatch, prefetch and drain")
class DispatchTest extends JmsTestCase {
    private static final int CONSUMERS = 8;
    private static final int PREFETCH = 10;

    private static String[] numbers(int count) {
        return IntStream.range(0, count).mapToObj(Integer::toString).toArray(String[]::new);
    }

    @Test
    @DisplayName("Eight consumers with room for ten each get ten of eighty messages, in whatever order these come")
    void fairShare() throws JMSException {
        Topic topic = topic("orders");
        List<MessageConsumer> consumers =
                shared(topic, CONSUMERS, Session.CLIENT_ACKNOWLEDGE, "jms.prefetchPolicy.all=" + PREFETCH);
        send(topic, numbers(CONSUMERS * PREFETCH));
        Set<String> seen = new HashSet<>();
        for (MessageConsumer consumer : consumers) {
            seen.addAll(texts(consumer, PREFETCH));
        }
        assertEquals(Set.of(numbers(CONSUMERS * PREFETCH)), seen);
    }

    @Test
    @DisplayName("A consumer that does nothing holds no more than its prefetch; the others get the rest")
    void idleConsumerHoldsItsPrefetchOnly() throws JMSException {
        Topic topic = topic("orders");
        shared(topic, 1, Session.AUTO_ACKNOWLEDGE, "jms.prefetchPolicy.all=1");
        MessageConsumer busy = session().createSharedDurableConsumer(topic, name("s"));
        send(topic, numbers(100));
        assertEquals(99, new HashSet<>(texts(busy, 99)).size());
        assertNothing(busy);
    }

    @Test
    @DisplayName("With prefetch 0 each receive asks for one message")
    void prefetchZero() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer pulling = session(connect("jms.prefetchPolicy.all=0")).createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3");
        assertEquals("1", text(pulling));
        MessageConsumer other = session().createSharedDurableConsumer(topic, name("s"));
        assertEquals(List.of("2", "3"), texts(other, 2));
        assertNothing(pulling);
    }

    @Test
    @DisplayName("receiveNoWait drains: null at once when there is nothing, and the next message still comes")
    void drain() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"));
        for (int i = 0; i < 20; i++) {
            assertNothing(consumer);
            send(topic, "message " + i);
            assertEquals("message " + i, text(consumer));
        }
        assertNull(consumer.receive(1), "a receive whose time is over drains as well");
    }

    @Test
    @DisplayName("One consumer gets the messages of one producer in the order in which they were sent")
    void order() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"));
        String[] sent = numbers(500);
        send(topic, sent);
        assertEquals(List.of(sent), texts(consumer, sent.length));
    }

    @Test
    @DisplayName("Fifty subscriptions of one topic each get the message")
    void fiftySubscriptions() throws JMSException {
        Topic topic = topic("orders");
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            consumers.add(session(connect()).createSharedDurableConsumer(topic, name("s" + i)));
        }
        send(topic, "to all");
        for (MessageConsumer consumer : consumers) {
            assertEquals("to all", text(consumer));
        }
    }
}
