package orders;

import jakarta.annotation.PreDestroy;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.context.annotation.Profile;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.stereotype.Component;

/** Takes orders from "billing", by as many threads as application.yaml says, in as many pods as you like. */
@Component
@Profile("consume")
class Billing {
    private static final Logger log = LoggerFactory.getLogger(Billing.class);

    /**
     * The message is accepted when this returns. If it throws, the delivery has failed: the broker counts it, and after maxDeliveries of
     * the subscription the message goes to the dead letters.
     */
    @JmsListener(destination = "orders", subscription = "billing", containerFactory = "sharedDurable")
    void take(Message message) throws JMSException {
        String order = message.getBody(String.class);
        // A message may come twice: look before you act. This is the place for a look into your database.
        bill(order, message.getJMSRedelivered());
    }

    private void bill(String order, boolean again) {
        if (!order.startsWith("order ") || order.equals("order unpaid")) {
            throw new IllegalArgumentException("it cannot be billed: " + order);
        }
        log.info("billed {}{}", order, again ? " (again)" : "");
    }

    /** The listeners have stopped: what they were working on is accepted, what was prefetched went back. */
    @PreDestroy
    void stopped() {
        log.info("stopped");
    }
}
