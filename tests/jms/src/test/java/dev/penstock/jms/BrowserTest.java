package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.Enumeration;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What a browser shows is what a consumer could receive now, in that order: Jakarta Messaging 3.1, 4.1.6 and 6.1. */
@DisplayName("Browsers")
class BrowserTest extends OwnBrokerCase {
    private static final long HOUR = 3_600_000;

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("By priority, then as sent; with a selector; a delayed message not before its time; the same after a restart")
    void order(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        try (MessageProducer producer = session.createProducer(queue)) {
            for (int priority : new int[] {4, 9, 0, 4, 9}) {
                producer.setPriority(priority);
                producer.send(session.createTextMessage("p" + priority));
            }
            producer.setDeliveryDelay(HOUR);
            producer.send(session.createTextMessage("later"));
        }
        for (int round = 0; round < 2; round++) {
            assertEquals(List.of("p9", "p9", "p4", "p4", "p0"), browsed(session, queue));
            assertEquals(List.of("p9", "p9"), browsed(session, queue, "JMSPriority = 9"));
            if (round == 0) {
                broker.restart(ending);
            }
        }
        assertEquals(List.of("p9", "p9", "p4", "p4", "p0"), rest(session.createConsumer(queue)));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Neither what was sent nor what was received in an open transaction; a restart that ends it shows the latter")
    void transactions(Ending ending) throws Exception {
        startBroker();
        Session browsing = own();
        Queue queue = browsing.createQueue("work");
        publish(browsing, queue, "1", "2");
        Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("1", text(consumer));
        publish(session, queue, "never");
        assertEquals(List.of("2"), browsed(browsing, queue));
        session.rollback();
        assertEquals(List.of("1", "2"), browsed(browsing, queue));
        assertEquals("1", text(consumer));
        publish(session, queue, "never");
        broker.restart(ending);
        assertEquals(List.of("1", "2"), browsed(own(), queue));
        assertNotCommitted(session::commit);
        assertEquals(List.of("1", "2"), browsed(browsing, queue));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("How often a message was delivered, as a consumer would be told; the same after a restart")
    void deliveryCounts(Ending ending) throws Exception {
        startBroker();
        Session browsing = own();
        Queue queue = browsing.createQueue("work");
        publish(browsing, queue, "1", "2");
        Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.SESSION_TRANSACTED);
        assertEquals("1", text(session.createConsumer(queue)));
        session.rollback();
        for (int round = 0; round < 2; round++) {
            try (QueueBrowser browser = browsing.createBrowser(queue)) {
                Enumeration<?> messages = browser.getEnumeration();
                assertTrue(messages.hasMoreElements());
                Message first = (Message) messages.nextElement();
                assertEquals(2, first.getIntProperty("JMSXDeliveryCount"));
                assertTrue(first.getJMSRedelivered());
            }
            if (round == 0) {
                broker.restart(ending);
            }
        }
    }

    @Test
    @DisplayName("Not what has expired")
    void expired() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.send(session.createTextMessage("for a moment"), DeliveryMode.PERSISTENT, 4, 200);
            producer.send(session.createTextMessage("for an hour"), DeliveryMode.PERSISTENT, 4, HOUR);
        }
        long deadline = System.currentTimeMillis() + SOON;
        while (browsed(session, queue).size() > 1) {
            assertTrue(System.currentTimeMillis() < deadline, "it never expires");
        }
        assertEquals(List.of("for an hour"), browsed(session, queue));
    }
}
