package orders;

import jakarta.jms.JMSSecurityException;
import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says why the program ends, in place of a stack trace; META-INF/spring.factories names it. */
class LoginRefused extends AbstractFailureAnalyzer<JMSSecurityException> {
    @Override
    protected FailureAnalysis analyze(Throwable failure, JMSSecurityException refused) {
        return new FailureAnalysis(
                "refused: " + refused.getMessage(), "Compare PENSTOCK_USER and PENSTOCK_PASSWORD with the Broker's users.", failure);
    }
}
