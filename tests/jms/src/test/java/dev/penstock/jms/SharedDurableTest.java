package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code Session.createSharedDurableConsumer} on connections without a ClientID: a global subscription. */
@DisplayName("Shared durable, no ClientID")
class SharedDurableTest extends JmsTestCase {
    @Test
    @DisplayName("Each message goes to one of the consumers on two connections, and both get some")
    void sharedByTwoConnections() throws JMSException {
        Topic topic = topic("orders");
        List<MessageConsumer> consumers = shared(topic, 2, Session.AUTO_ACKNOWLEDGE, "jms.prefetchPolicy.all=2");
        send(topic, "1", "2", "3", "4");

        Set<String> seen = new HashSet<>(texts(consumers.get(0), 2));
        seen.addAll(texts(consumers.get(1), 2));
        assertEquals(Set.of("1", "2", "3", "4"), seen);
    }

    @Test
    @DisplayName("Two consumers of one session share as two connections do")
    void sharedWithinOneSession() throws JMSException {
        Topic topic = topic("orders");
        Session session = session(connect("jms.prefetchPolicy.all=1"));
        MessageConsumer one = session.createSharedDurableConsumer(topic, name("s"));
        MessageConsumer two = session.createSharedDurableConsumer(topic, name("s"));
        flush(session);
        send(topic, "1", "2");
        assertEquals(Set.of("1", "2"), Set.of(text(one), text(two)));
    }

    @Test
    @DisplayName("It goes on collecting while no consumer is active, and a consumer of any connection gets the backlog")
    void collectsWhileInactive() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connect();
        session(first).createSharedDurableConsumer(topic, name("s")).close();
        send(topic, "after close");
        first.close();
        send(topic, "after disconnect");

        MessageConsumer later = session().createSharedDurableConsumer(topic, name("s"));
        assertEquals(List.of("after close", "after disconnect"), texts(later, 2));
    }

    @Test
    @DisplayName("Subscriptions of different names each get their own copy")
    void otherNameOtherSubscription() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer billing = session().createSharedDurableConsumer(topic, name("billing"));
        MessageConsumer shipping = session().createSharedDurableConsumer(topic, name("shipping"));
        send(topic, "order");
        assertEquals("order", text(billing));
        assertEquals("order", text(shipping));
    }

    @Test
    @DisplayName("What a consumer was sent and did not acknowledge goes to the others when it leaves")
    void leavingConsumerGivesBack() throws JMSException {
        Topic topic = topic("orders");
        Connection leaving = connect("jms.prefetchPolicy.all=3");
        leaving.createSession(Session.CLIENT_ACKNOWLEDGE).createSharedDurableConsumer(topic, name("s"));
        MessageConsumer staying = session(connect("jms.prefetchPolicy.all=0")).createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3");
        leaving.close();
        assertEquals(Set.of("1", "2", "3"), new HashSet<>(texts(staying, 3)));
    }

    @Test
    @DisplayName("Closing one consumer leaves the subscription to the others")
    void closingOneLeavesTheOthers() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer one = session().createSharedDurableConsumer(topic, name("s"));
        MessageConsumer two = session().createSharedDurableConsumer(topic, name("s"));
        one.close();
        send(topic, "1", "2");
        assertEquals(List.of("1", "2"), texts(two, 2));
    }

    @Test
    @DisplayName("A selector filters when the message is published")
    void selectorFilters() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"), "region = 'eu'");
        sendFrom(topic, "us", "not this");
        sendFrom(topic, "eu", "this");
        assertEquals("this", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("Messages that were sent before the subscription exists never reach it")
    void startsEmpty() throws JMSException {
        Topic topic = topic("orders");
        send(topic, "before");
        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"));
        assertNothing(consumer);
        send(topic, "after");
        assertEquals("after", text(consumer));
    }
}
