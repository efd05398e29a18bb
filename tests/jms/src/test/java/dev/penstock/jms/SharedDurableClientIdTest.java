package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code Session.createSharedDurableConsumer} with a ClientID: the subscription belongs to that ClientID. */
@DisplayName("Shared durable, with ClientID")
class SharedDurableClientIdTest extends JmsTestCase {
    @Test
    @DisplayName("Consumers of several sessions of the connection share it")
    void sharedByTheSessionsOfOneConnection() throws JMSException {
        Topic topic = topic("orders");
        Connection connection = connectAs(name("app"), "jms.prefetchPolicy.all=1");
        MessageConsumer one = session(connection).createSharedDurableConsumer(topic, name("s"));
        MessageConsumer two = session(connection).createSharedDurableConsumer(topic, name("s"));
        MessageConsumer three = session(connection).createSharedDurableConsumer(topic, name("s"));
        flush(session(connection));
        send(topic, "1", "2", "3");
        assertEquals(Set.of("1", "2", "3"), Set.of(text(one), text(two), text(three)));
    }

    @Test
    @DisplayName("The next connection with the ClientID finds the backlog")
    void foundByTheNextConnection() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connectAs(name("app"));
        session(first).createSharedDurableConsumer(topic, name("s"));
        first.close();
        send(topic, "1", "2");
        MessageConsumer again = session(connectAs(name("app"))).createSharedDurableConsumer(topic, name("s"));
        assertEquals(List.of("1", "2"), texts(again, 2));
    }

    @Test
    @DisplayName("Another ClientID, and no ClientID, have subscriptions of their own under the same name")
    void scopedToTheClientId() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer mine = session(connectAs(name("app"))).createSharedDurableConsumer(topic, name("s"));
        MessageConsumer other = session(connectAs(name("other"))).createSharedDurableConsumer(topic, name("s"));
        MessageConsumer global = session().createSharedDurableConsumer(topic, name("s"));
        send(topic, "order");
        for (MessageConsumer consumer : List.of(mine, other, global)) {
            assertEquals("order", text(consumer));
        }
    }

    @Test
    @DisplayName("Consumers made and closed again and again still mean one subscription")
    void linkNameSuffixMeansNothing() throws JMSException {
        Topic topic = topic("orders");
        Session session = session(connectAs(name("app"), "jms.prefetchPolicy.all=1"));
        MessageConsumer first = session.createSharedDurableConsumer(topic, name("s"));
        MessageConsumer second = session.createSharedDurableConsumer(topic, name("s"));
        first.close();
        MessageConsumer third = session.createSharedDurableConsumer(topic, name("s")); // link name s|3
        flush(session);
        send(topic, "1", "2");
        assertEquals(Set.of("1", "2"), Set.of(text(second), text(third)));
    }
}
