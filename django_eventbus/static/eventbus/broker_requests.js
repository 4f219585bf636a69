/* Follow the broker requests and the level of a queue: fetch the page until all requests ended. */
'use strict';
{
    const EVERY = 1000;
    const ID = 'eventbus-broker-requests';
    const FOLLOWED = [ID, 'eventbus-levels'];

    // Replace only changed parts, so that a screen reader does not read the others again.
    const show = function(page, id) {
        const shown = document.getElementById(id);
        const fresh = page.getElementById(id);
        if (fresh && fresh.outerHTML !== shown.outerHTML) {
            shown.replaceWith(document.importNode(fresh, true));
        }
    };

    const follow = async function(left) {
        const shown = document.getElementById(ID);
        if (!shown || !('eventbusAwaited' in shown.dataset) || !left) {
            return;
        }
        try {
            const response = await fetch(window.location.href);
            const page = new DOMParser().parseFromString(await response.text(), 'text/html');
            FOLLOWED.forEach(id => show(page, id));
        } catch {
            // The server may answer the next request.
        }
        window.setTimeout(follow, EVERY, left - 1);
    };

    document.addEventListener('DOMContentLoaded', () => window.setTimeout(follow, EVERY, 120));
}
