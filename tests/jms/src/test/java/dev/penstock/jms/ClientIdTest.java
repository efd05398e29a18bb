package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Topic;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code Connection.setClientID}: one connection per ClientID (docs/reference/rules.md, decision 13: sole-connection-for-container). */
@DisplayName("ClientID")
class ClientIdTest extends JmsTestCase {
    @Test
    @DisplayName("A second connection with a ClientID in use is refused; the first goes on")
    void inUse() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer consumer = session(connectAs(name("app"))).createDurableConsumer(topic, name("d"));
        assertThrows(InvalidClientIDException.class, () -> connectAs(name("app")));
        send(topic, "1");
        assertEquals("1", text(consumer));
    }

    @Test
    @DisplayName("After close the ClientID is free at once")
    void freeAfterClose() throws JMSException {
        for (int i = 0; i < 20; i++) {
            Connection connection = connectAs(name("app"));
            connection.close();
        }
    }

    @Test
    @DisplayName("ClientIDs may hold any characters, and different ones never share a subscription")
    void anyCharacters() throws JMSException {
        Topic topic = topic("orders");
        String[] awkward = {"a/b", "a|b", "a b", "a:b", "ä", "%2F", "global"};
        MessageConsumer[] consumers = new MessageConsumer[awkward.length];
        for (int i = 0; i < awkward.length; i++) {
            consumers[i] = session(connectAs(awkward[i] + name(""))).createDurableConsumer(topic, "d");
        }
        send(topic, "order");
        for (int i = 0; i < awkward.length; i++) {
            assertEquals("order", text(consumers[i]), awkward[i]);
            assertNothing(consumers[i]);
        }
    }
}
