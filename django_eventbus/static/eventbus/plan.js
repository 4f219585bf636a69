/* Follow a plan: fetch the parts of its page that change, until it is over. */
'use strict';
{
    const EVERY = 1000;
    const LONGEST_WAIT = 15000;

    // The element in the new content that corresponds to the focused one.
    const counterpart = function(part, focused) {
        const same = (each) => ['id', 'href', 'formaction'].some(
            (name) => focused.hasAttribute(name)
                && focused.getAttribute(name) === each.getAttribute(name)
        );
        return [...part.querySelectorAll('a, button')].find((each) => same(each) && !each.disabled);
    };

    const replace = function(part, html) {
        const focused = part.contains(document.activeElement) ? document.activeElement : null;
        part.innerHTML = html;
        if (focused) {
            // If it is gone, focus the part, so that Tab does not continue at the top of the page.
            part.tabIndex = -1;
            (counterpart(part, focused) || part).focus({preventScroll: true});
        }
    };

    const show = function(root, progress) {
        for (const [name, html] of Object.entries(progress.parts)) {
            const part = root.querySelector(`[data-eventbus-part="${name}"]`);
            if (part.dataset.eventbusShown !== html) {
                part.dataset.eventbusShown = html;
                replace(part, html);
            }
        }
        // Change only the text: a screen reader announces changes only in an existing region.
        for (const [name, text] of Object.entries(progress.texts)) {
            const place = root.querySelector(`[data-eventbus-text="${name}"]`);
            if (place.textContent !== text) {
                place.textContent = text;
            }
        }
    };

    const say = function(root, isLive, isSilent) {
        root.querySelector('[data-eventbus-live]').hidden = !isLive;
        root.querySelector('[data-eventbus-silent]').hidden = !isSilent;
    };

    const fetched = async function(root) {
        const response = await fetch(root.dataset.eventbusProgress, {
            headers: {'Accept': 'application/json'},
        });
        // A redirect leads to the login page.
        if (!response.ok || response.redirected) {
            throw new Error(response.statusText);
        }
        return response.json();
    };

    // Resolves after the wait, or at once when the page becomes visible again.
    const pause = function(wait) {
        return new Promise(function(resolve) {
            const done = function() {
                document.removeEventListener('visibilitychange', done);
                resolve();
            };
            document.addEventListener('visibilitychange', done);
            setTimeout(done, document.hidden ? LONGEST_WAIT : wait);
        });
    };

    const follow = async function(root) {
        for (let wait = EVERY; ; await pause(wait)) {
            try {
                const progress = await fetched(root);
                show(root, progress);
                say(root, !progress.is_over, false);
                if (progress.is_over) {
                    return;
                }
                wait = EVERY;
            } catch {
                say(root, false, true);
                wait = Math.min(wait * 2, LONGEST_WAIT);
            }
        }
    };

    document.addEventListener('DOMContentLoaded', function() {
        follow(document.querySelector('[data-eventbus-progress]'));
    });
}
