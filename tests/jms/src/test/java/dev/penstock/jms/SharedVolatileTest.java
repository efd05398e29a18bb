package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code Session.createSharedConsumer}: shared for as long as somebody consumes. */
@DisplayName("Shared volatile")
class SharedVolatileTest extends JmsTestCase {
    @Test
    @DisplayName("Without ClientID the consumers of two connections share it")
    void sharedByTwoConnections() throws JMSException {
        Topic topic = topic("prices");
        Session first = session(connect("jms.prefetchPolicy.all=1"));
        Session second = session(connect("jms.prefetchPolicy.all=1"));
        MessageConsumer one = first.createSharedConsumer(topic, name("s"));
        MessageConsumer two = second.createSharedConsumer(topic, name("s"));
        flush(first);
        flush(second);
        send(topic, "1", "2");
        assertEquals(Set.of("1", "2"), Set.of(text(one), text(two)));
    }

    @Test
    @DisplayName("With a ClientID the consumers of its connection share it, and those of another don't")
    void scopedToTheClientId() throws JMSException {
        Topic topic = topic("prices");
        Connection connection = connectAs(name("app"), "jms.prefetchPolicy.all=1");
        MessageConsumer one = session(connection).createSharedConsumer(topic, name("s"));
        MessageConsumer two = session(connection).createSharedConsumer(topic, name("s"));
        flush(session(connection));
        MessageConsumer other = session(connectAs(name("other"))).createSharedConsumer(topic, name("s"));
        send(topic, "1", "2");
        assertEquals(Set.of("1", "2"), Set.of(text(one), text(two)));
        assertEquals(Set.of("1", "2"), Set.copyOf(texts(other, 2)));
    }

    @Test
    @DisplayName("Closing one consumer (which the client does with closed=true) leaves it to the others")
    void closingOneLeavesTheOthers() throws JMSException {
        Topic topic = topic("prices");
        Session session = session();
        MessageConsumer one = session.createSharedConsumer(topic, name("s"));
        MessageConsumer two = session().createSharedConsumer(topic, name("s"));
        one.close();
        send(topic, "1", "2");
        assertEquals(Set.of("1", "2"), Set.copyOf(texts(two, 2)));
    }

    @Test
    @DisplayName("It ends with the last consumer: what is sent then is lost")
    void endsWithTheLastConsumer() throws JMSException {
        Topic topic = topic("prices");
        session().createSharedConsumer(topic, name("s")).close();
        send(topic, "nobody's");
        MessageConsumer later = session().createSharedConsumer(topic, name("s"));
        assertNothing(later);
        send(topic, "somebody's");
        assertEquals("somebody's", text(later));
    }

    @Test
    @DisplayName("It ends when the last connection goes")
    void endsWithTheLastConnection() throws JMSException {
        Topic topic = topic("prices");
        Connection only = connect();
        session(only).createSharedConsumer(topic, name("s"));
        only.close();
        send(topic, "nobody's");
        assertNothing(session().createSharedConsumer(topic, name("s")));
    }

    @Test
    @DisplayName("Another selector while in use is refused; once idle it may be anything")
    void otherSelector() throws JMSException {
        Topic topic = topic("prices");
        MessageConsumer eu = session().createSharedConsumer(topic, name("s"), "region = 'eu'");
        assertRefused(LOCKED, () -> session().createSharedConsumer(topic, name("s"), "region = 'us'"));
        sendFrom(topic, "eu", "still served");
        assertEquals("still served", text(eu));
        eu.close();

        MessageConsumer us = session().createSharedConsumer(topic, name("s"), "region = 'us'");
        sendFrom(topic, "us", "new selector");
        assertEquals("new selector", text(us));
    }
}
