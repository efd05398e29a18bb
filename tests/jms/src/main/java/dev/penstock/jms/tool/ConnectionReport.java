package dev.penstock.jms.tool;

import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.net.URI;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;

/** Reports when failover loses its connection, {@code interrupted}, and when it has another one with all links attached, {@code restored}. */
final class ConnectionReport implements JmsConnectionListener {
    @Override
    public void onConnectionInterrupted(URI broker) {
        Report.event("interrupted");
    }

    @Override
    public void onConnectionRestored(URI broker) {
        Report.event("restored");
    }

    @Override
    public void onConnectionEstablished(URI broker) {}

    @Override
    public void onConnectionFailure(Throwable failure) {}

    @Override
    public void onInboundMessage(JmsInboundMessageDispatch message) {}

    @Override
    public void onSessionClosed(Session session, Throwable failure) {}

    @Override
    public void onConsumerClosed(MessageConsumer consumer, Throwable failure) {}

    @Override
    public void onProducerClosed(MessageProducer producer, Throwable failure) {}
}
